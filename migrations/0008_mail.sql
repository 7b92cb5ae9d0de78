-- A mail is in the hand of one job at a time.
ALTER TABLE mail ADD COLUMN held_until BIGINT;
