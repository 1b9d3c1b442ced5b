CREATE TABLE "epochs" (
	"number" integer PRIMARY KEY NOT NULL,
	"system_identifier" bigint NOT NULL,
	"timeline" text NOT NULL,
	"since" timestamp with time zone NOT NULL
);
