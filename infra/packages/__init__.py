"""Released packages of engines and routers, read for what they accept (`scripts/dump-engine-catalogue`)."""
