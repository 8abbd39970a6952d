"""Find items in the texts that DynamoDB writes: pages, lines, changes; read and write JSON strictly."""
