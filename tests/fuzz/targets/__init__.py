"""The targets, a file for each part of the project."""
