"""What is kept between runs under .samebits."""
