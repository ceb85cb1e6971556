"""What released engines themselves say to command lines: asked, and recorded for the tests."""
