"""What an answer is measured by, out of files: gates and facts, which code checks."""
