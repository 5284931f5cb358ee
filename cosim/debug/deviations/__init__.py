"""How a result deviates from a reference, and which fields could be the cause."""
