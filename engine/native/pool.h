/* A few threads for the pieces of one operation after the other. */

#pragma once

typedef void (*Work)(const void *job, int piece);

/* Take `threads` threads, the caller among them, until `leave`. Where another caller has them, the
   caller works alone. */
void enter(int threads);
void leave(void);

/* How many there are. */
int workers(void);

/* work(job, 0) to work(job, pieces - 1), in any order; returns when all are done. */
void parallel(Work work, const void *job, int pieces);
