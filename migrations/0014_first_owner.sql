-- Who came first, by the link that the start of a new installation prints, and runs it.
ALTER TABLE account ADD COLUMN runs_platform BOOLEAN NOT NULL DEFAULT FALSE;
