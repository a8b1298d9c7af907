select * exclude (ref) from tokens
