-- Who hands events out holds them by the transaction in which it does.
ALTER TABLE app_event DROP COLUMN held_until;
