int  canary( int a ){return a;}
