select * exclude (ref) from audit
