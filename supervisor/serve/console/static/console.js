"use strict";
// Parts that all pages of the console share.
