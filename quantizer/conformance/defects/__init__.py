"""The declared defects of real systems: their pages and their stand-alone scripts."""
