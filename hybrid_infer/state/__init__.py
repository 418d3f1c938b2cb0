"""What a method works on: the layers, objects and settings that it reaches, what a capture read and wrote of them."""
