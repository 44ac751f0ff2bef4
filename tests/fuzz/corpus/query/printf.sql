SELECT printf('%.*c', 200000, 'x')
