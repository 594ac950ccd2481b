"""What tests share: small networks, programs, models of the link, and second implementations to compare with."""
