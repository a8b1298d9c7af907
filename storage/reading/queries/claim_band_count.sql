-- needs: bands
-- Problems of one arm in one band, of the imported screening.
select count(*) as value from bands join artifacts using (ref)
where stage = 'import_bands' and arm = $arm and band = $band
having (select count(*) from bands join artifacts using (ref) where stage = 'import_bands') > 0
