"""The reference's place of import."""
