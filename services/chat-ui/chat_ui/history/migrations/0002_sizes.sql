ALTER TABLE threads ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE steps ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
-- Nobody counted before: two bytes for each character lie between English and Chinese
UPDATE steps SET bytes = 200 + 2 * (length(output) + length(text) + length(details));
UPDATE threads SET bytes = 200 + COALESCE((SELECT SUM(steps.bytes) FROM steps WHERE steps.thread_id = threads.id), 0);
