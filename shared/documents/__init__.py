"""Documents: how files become text, and how a folder of them is read (`read_folder`, `extract`)."""
