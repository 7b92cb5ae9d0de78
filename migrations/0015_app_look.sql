-- How an app looks on the pages where its people sign in.
ALTER TABLE app ADD COLUMN logo_url TEXT;
ALTER TABLE app ADD COLUMN primary_color TEXT;
