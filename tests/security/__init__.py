"""What an attacker could try: with a submission, with a message, with the rights of a worker, or by reading along."""
