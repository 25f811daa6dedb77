"""What a server knows of its users: who they are, and what each of them may do and has used up."""
