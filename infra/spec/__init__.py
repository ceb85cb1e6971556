"""What an operator may write: shapes and units of the stack file, nothing about the world."""
