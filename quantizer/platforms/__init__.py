"""The rooms: one folder a system. Nothing outside imports one; they are found through their entry points."""
