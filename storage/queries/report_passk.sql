select * exclude (ref) from passk
