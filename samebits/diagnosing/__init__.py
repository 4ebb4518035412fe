"""What samebits/diagnose.py says of a cell besides its verdict, one noun for each module."""
