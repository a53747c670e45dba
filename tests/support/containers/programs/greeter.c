/* The only program of the distroless image: it greets each connection to port 8080 of the loopback interface, and echoes
   what it is sent. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void end(int number)
{
    (void)number;
    _exit(0);
}

static void serve(int connection)
{
    static const char greeting[] = "distroless\n";
    char received[4096];
    ssize_t length = sizeof greeting - 1;

    memcpy(received, greeting, (size_t)length);
    do {
        for (ssize_t sent = 0; sent < length;) {
            ssize_t written = write(connection, received + sent, (size_t)(length - sent));
            if (written <= 0)
                _exit(1);
            sent += written;
        }
        length = read(connection, received, sizeof received);
    } while (length > 0);
    _exit(0);
}

int main(void)
{
    int yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(8080)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, end);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16))
        return 1;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0)
            continue;
        if (fork() == 0)
            serve(connection);
        close(connection);
    }
}
