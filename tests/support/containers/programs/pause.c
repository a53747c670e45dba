/* The process of a Pod's sandbox: it holds the namespaces until it is told to end. Static, and without libraries. */

#include <signal.h>
#include <unistd.h>

static void end(int number)
{
    (void)number;
    _exit(0);
}

int main(void)
{
    signal(SIGCHLD, SIG_IGN); /* the kernel reaps orphans */
    signal(SIGTERM, end);
    signal(SIGINT, end);
    for (;;)
        pause();
}
