"""The Compass Optimizer and the targets that it quantizes for."""
