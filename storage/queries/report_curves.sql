select * exclude (ref) from curves
