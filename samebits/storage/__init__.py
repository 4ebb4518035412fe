"""Files kept between runs in the folder .samebits: captures, tensors, rows, receipts."""
