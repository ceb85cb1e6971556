"""What brings NPUs to torch: the stand-in's torch has them already."""
