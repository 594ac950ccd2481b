"""Small transformers for keywords and pictures: trained here, and measured on an NPU with a written matrix memory."""
