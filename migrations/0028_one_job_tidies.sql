-- Chores of all features are done by the job `tidy`.
DELETE FROM job WHERE kind IN ('tenancy.tidy', 'identity.tidy');
DELETE FROM recurring_job WHERE name IN ('tenancy.tidy', 'identity.tidy');
