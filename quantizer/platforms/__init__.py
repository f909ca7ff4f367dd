"""The rooms: one folder a system. No module outside imports a room; rooms are found through their entry points."""
