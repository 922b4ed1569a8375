"""The browser console of `handoff serve`."""
