select * exclude (ref) from crosstab
