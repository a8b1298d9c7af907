-- What the audit found in the designs.
select * exclude (ref) from audit
