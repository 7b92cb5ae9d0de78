-- How many bytes of a resumable upload have arrived; null for others.
ALTER TABLE storage_object ADD COLUMN received BIGINT;

-- The files they lie in until the last one is there.
CREATE TABLE storage_piece (
    object_id TEXT NOT NULL REFERENCES storage_object (id) ON DELETE CASCADE,
    start_at BIGINT NOT NULL,
    length BIGINT NOT NULL,
    file TEXT NOT NULL,
    PRIMARY KEY (object_id, start_at)
);
