"""`make bench`: how fast the parts are, against the least that their work could cost."""
