"""Find items in text: pages, lines and changes as DynamoDB writes them; parse and print JSON strictly."""
