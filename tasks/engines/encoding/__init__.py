"""What embeds traces."""
