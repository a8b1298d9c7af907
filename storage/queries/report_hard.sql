select * exclude (ref) from hard
