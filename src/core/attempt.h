/*
 * attempt.h - the files of a runner's folder. Its engine makes the folder, its runner works in it,
 * a sweeper reads what a dead runner left, and the engine removes it. The server does none of that:
 * it may lie on another machine. tools/tidy.py holds src/server to it.
 */
#ifndef ATTEMPT_H
#define ATTEMPT_H

/* <home>/starts/<name of the attempt's folder>: the same record, where its runner cannot write. */
#define ATTEMPT_STARTS "starts"
#define ATTEMPT_START "launch.json"  /* struct wire_start, 0600: from the engine */
#define ATTEMPT_RUNNER "runner.json" /* which process it is: for an engine without a reference */
#define ATTEMPT_WORDS "runner.log"   /* what the runner itself says */
#define ATTEMPT_LOG "log"            /* of the job: redacted records */
#define ATTEMPT_EXIT "exit.json"     /* struct wire_exit, written before it is sent */
#define ATTEMPT_SPARE "exit.spare"   /* its room, made before the job begins */
#define ATTEMPT_SHIP "ship.json"     /* what a sweeper needs to send the rest of the checkpoints */

#endif
