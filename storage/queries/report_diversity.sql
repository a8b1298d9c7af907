select * exclude (ref) from diversity
