CREATE TABLE threads (
    id VARCHAR(36) PRIMARY KEY,
    owner VARCHAR(320) NOT NULL,
    name TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    used_ms BIGINT NOT NULL,
    settings TEXT NOT NULL
);
CREATE INDEX threads_of_owner ON threads (owner, used_ms);
CREATE INDEX threads_by_use ON threads (used_ms);
CREATE TABLE steps (
    id VARCHAR(36) PRIMARY KEY,
    thread_id VARCHAR(36) NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    created_at VARCHAR(32) NOT NULL,
    type VARCHAR(32) NOT NULL,
    name TEXT NOT NULL,
    output TEXT NOT NULL,
    text TEXT NOT NULL,
    is_error BOOLEAN NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX steps_of_thread ON steps (thread_id, created_at);
CREATE TABLE feedback (
    step_id VARCHAR(36) PRIMARY KEY REFERENCES steps (id) ON DELETE CASCADE,
    value INTEGER NOT NULL,
    comment TEXT
);
