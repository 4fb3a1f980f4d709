/* main.c - dispatch to the roles; the only file above the layers. */
#include "base/base.h"

int main(void)
{
	return 0;
}
