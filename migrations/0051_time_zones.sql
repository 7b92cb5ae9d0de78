-- The time zone in which mails and pages tell a user when something was done, as in Europe/Zurich; nothing for UTC.
ALTER TABLE account ADD COLUMN time_zone TEXT;
