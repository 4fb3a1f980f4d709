/* link.c - an empty main(): meson.build links it with each layer, whole, to prove the layering. */
int main(void);

int main(void)
{
	return 0;
}
