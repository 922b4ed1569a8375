"""Gates and facts in files, which code checks answers against."""
